// The cost of moving a deadline in Go, printed as one JSON object of nanoseconds per operation.
//
//	resets live NUMBER OPERATIONS ROUNDS   on a loopback connection, with NUMBER timers armed meanwhile
//	resets expiry NUMBER                   NUMBER timers, each moved later, and past their old times; CPU time
//
// The other armed timers are those of time.AfterFunc, in the same heap of the runtime.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"os"
	"runtime"
	"sort"
	"strconv"
	"syscall"
	"time"
)

func main() {
	number := argument(2)
	var found map[string]float64
	if os.Args[1] == "live" {
		found = live(number, argument(3), argument(4))
	} else {
		found = expiry(number)
	}
	line, err := json.Marshal(found)
	check(err)
	fmt.Println(string(line))
}

func live(number, operations, rounds int) map[string]float64 {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	conn, peer := pair(listener)
	held := []net.Conn{peer}
	timers := make([]*time.Timer, number-1) // the measured timer is one of the number
	for i := range timers {
		timers[i] = time.AfterFunc(between(time.Hour/4, 2*time.Hour), func() {})
	}
	later := median(rounds, operations, func() func(int) {
		return func(n int) {
			for i := 0; i < n; i++ {
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			}
		}
	})
	// a new connection for every round: a timer that is already filed at an earlier time would not have to move
	earlier := median(rounds, operations, func() func(int) {
		fresh, other := pair(listener)
		held = append(held, fresh, other)
		check(fresh.SetReadDeadline(time.Now().Add(3 * time.Hour)))
		return func(n int) {
			timeout := 3 * time.Hour
			step := 29 * time.Hour / 10 / time.Duration(n)
			for i := 0; i < n; i++ {
				timeout -= step
				fresh.SetReadDeadline(time.Now().Add(timeout))
			}
		}
	})
	cleared := median(rounds, operations, func() func(int) {
		return func(n int) {
			for i := 0; i < n; i++ {
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				conn.SetReadDeadline(time.Time{})
			}
		}
	})
	runtime.KeepAlive(timers)
	runtime.KeepAlive(held)
	return map[string]float64{"later": later, "earlier": earlier, "set and cleared": cleared}
}

func expiry(number int) map[string]float64 {
	const lead, window = time.Second, 50 * time.Millisecond
	first := time.Now().Add(lead)
	timers := make([]*time.Timer, number)
	for i := range timers {
		timers[i] = time.AfterFunc(time.Until(first)+between(0, window), func() {})
	}
	runtime.GC()
	before := cpu()
	for _, timer := range timers {
		timer.Reset(time.Hour)
	}
	if time.Now().After(first) {
		check(fmt.Errorf("moving %d timers took too long: the first had come already", number))
	}
	time.Sleep(time.Until(first.Add(window + 10*time.Millisecond)))
	spent := float64(cpu()-before) / float64(number)
	runtime.KeepAlive(timers)
	return map[string]float64{"moved and filed anew": spent}
}

// cpu returns the nanoseconds that this process has used.
func cpu() int64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano()
}

func pair(listener net.Listener) (net.Conn, net.Conn) {
	one, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	other, err := listener.Accept()
	check(err)
	return one, other
}

// median of the rounds' nanoseconds per operation, after a warm-up.
func median(rounds, operations int, fresh func() func(int)) float64 {
	fresh()(operations/10 + 1)
	found := make([]float64, rounds)
	for i := range found {
		loop := fresh()
		began := time.Now()
		loop(operations)
		found[i] = perOperation(began, operations)
	}
	sort.Float64s(found)
	return found[rounds/2]
}

func perOperation(began time.Time, operations int) float64 {
	return float64(time.Since(began).Nanoseconds()) / float64(operations)
}

func between(least, most time.Duration) time.Duration {
	return least + time.Duration(rand.Int63n(int64(most-least)))
}

func argument(place int) int {
	value, err := strconv.Atoi(os.Args[place])
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
