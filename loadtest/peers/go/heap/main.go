// The cost of NUMBER timers in Go, printed as one JSON object of nanoseconds per timer: heap NUMBER. They are started,
// moved later, moved earlier, and half are stopped; then all are started and fire.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// timers fire in real time: late enough that all have been started, and then all within a millisecond
const (
	delay  = 1500 * time.Nanosecond // for each timer
	window = time.Millisecond
)

var fired atomic.Int64

func main() {
	number, err := strconv.Atoi(os.Args[1])
	check(err)
	line, err := json.Marshal(many(number))
	check(err)
	fmt.Println(string(line))
}

func many(number int) map[string]float64 {
	found := map[string]float64{}
	times := durations(number, time.Hour, 2*time.Hour)
	later := durations(number, 2*time.Hour, 3*time.Hour)
	earlier := durations(number, time.Hour/2, time.Hour)
	timers := make([]*time.Timer, number)
	before := resident()
	began := time.Now()
	start(timers, times)
	found["start"] = per(began, number)
	if after := resident(); before > 0 && after > 0 {
		found["memory"] = float64(after-before)/float64(number) + 8 // bytes, including the slot of the slice
	}
	began = time.Now()
	move(timers, later)
	found["move later"] = per(began, number)
	began = time.Now()
	move(timers, earlier)
	// the runtime defers the work until a moved timer is due
	timers[number-1].Reset(1)
	await(1)
	found["move earlier"] = per(began, number)
	began = time.Now()
	stop(timers[:number/2])
	found["stop"] = per(began, number/2)
	stop(timers)
	fired.Store(0)

	// a separate slice of times, so that the heap is in random order
	first := time.Duration(number)*delay + 100*time.Millisecond
	times = durations(number, first, first+window)
	runtime.GC()
	began = time.Now()
	start(timers, times)
	spent := time.Since(began)
	if spent >= first {
		check(fmt.Errorf("starting took %v, and the first timers were due after %v", spent, first))
	}
	// Nothing happens until the first is due, and that time is not counted. The measurement starts when it is due, not
	// when this goroutine wakes, because others may have fired by then.
	time.Sleep(time.Until(began.Add(first)))
	await(int64(number))
	fire := time.Since(began.Add(first))
	found["fire"] = float64(fire.Nanoseconds()) / float64(number)
	found["start and fire"] = float64((spent + fire).Nanoseconds()) / float64(number)
	return found
}

func start(timers []*time.Timer, times []time.Duration) {
	for i, after := range times {
		timers[i] = time.AfterFunc(after, func() { fired.Add(1) })
	}
}

func move(timers []*time.Timer, times []time.Duration) {
	for i, after := range times {
		timers[i].Reset(after)
	}
}

func stop(timers []*time.Timer) {
	for _, timer := range timers {
		timer.Stop()
	}
}

func await(number int64) {
	for fired.Load() < number {
		runtime.Gosched()
	}
}

func durations(number int, least, most time.Duration) []time.Duration {
	found := make([]time.Duration, number)
	for i := range found {
		found[i] = least + time.Duration(rand.Int63n(int64(most-least)))
	}
	return found
}

func per(began time.Time, number int) float64 {
	return float64(time.Since(began).Nanoseconds()) / float64(number)
}

// resident is the number of bytes that the process holds now; 0 without /proc.
func resident() int {
	debug.FreeOSMemory()
	line, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(line))[1])
	check(err)
	return pages * os.Getpagesize()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
