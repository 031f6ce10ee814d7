// The lateness of time.AfterFunc and the cost of a time.Ticker; arguments and output as in lateness_report.py.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	lead       = 100 * time.Millisecond
	leadEach   = 150 * time.Microsecond
	warmCount  = 1000
	warmSpread = 100 * time.Millisecond
)

// The lateness in seconds of each function, which runs in a goroutine of its own.
func functions(count int, spread time.Duration) []float64 {
	var lock sync.Mutex
	var done sync.WaitGroup
	lateness := make([]float64, 0, count)
	done.Add(count)
	chance := rand.New(rand.NewSource(int64(count)))
	first := time.Now().Add(lead + time.Duration(count)*leadEach)
	for i := 0; i < count; i++ {
		due := first.Add(time.Duration(chance.Float64() * float64(spread)))
		time.AfterFunc(time.Until(due), func() {
			late := time.Since(due).Seconds()
			lock.Lock()
			lateness = append(lateness, late)
			lock.Unlock()
			done.Done()
		})
	}
	if time.Now().After(first) {
		log.Fatal("making the timers took longer than the lead")
	}
	done.Wait()
	return lateness
}

func timers(lateness []float64) map[string]float64 {
	sort.Float64s(lateness)
	last := float64(len(lateness) - 1)
	found := map[string]float64{}
	points := []float64{99.5, 99.9}
	for point := 0; point <= 100; point++ {
		points = append(points, float64(point))
	}
	for _, point := range points {
		name := "q" + strconv.FormatFloat(point, 'g', -1, 64)
		found[name] = lateness[int(math.Round(point/100*last))]
	}
	early := 0
	for early < len(lateness) && lateness[early] < 0 {
		early++
	}
	found["early"] = float64(early) / float64(len(lateness))
	return found
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func ticker(period, seconds float64) map[string]float64 {
	ticks := time.NewTicker(time.Duration(period * 1e9))
	began, used, count := time.Now(), cpu(), 0
	for range ticks.C {
		count++
		if time.Since(began).Seconds() >= seconds {
			break
		}
	}
	lasted := time.Since(began).Seconds()
	expected := math.Floor(lasted / period)
	return map[string]float64{
		"cpu":     (cpu() - used) / lasted,
		"skipped": math.Max(expected-float64(count), 0) / expected,
	}
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	var found map[string]float64
	first, second := number(os.Args[3]), number(os.Args[4])
	if os.Args[2] == "ticker" {
		found = ticker(first, second)
	} else {
		functions(warmCount, warmSpread)
		fmt.Println("warm")
		found = timers(functions(int(first), time.Duration(second*1e9)))
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
