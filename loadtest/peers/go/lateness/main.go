// The lateness of time.AfterFunc: lateness COUNT SPREAD; output as in lateness.py.
package main

import (
	"encoding/json"
	"log"
	"math"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"sync"
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

func figures(lateness []float64) map[string]float64 {
	sort.Float64s(lateness)
	last := float64(len(lateness) - 1)
	found := map[string]float64{}
	for name, point := range map[string]float64{"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100} {
		found[name] = lateness[int(math.Round(point/100*last))] * 1000
	}
	early := 0
	for early < len(lateness) && lateness[early] < 0 {
		early++
	}
	found["early"] = 100 * float64(early) / float64(len(lateness))
	return found
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	count, spread := number(os.Args[1]), number(os.Args[2])
	functions(warmCount, warmSpread)
	found := figures(functions(int(count), time.Duration(spread*1e9)))
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
