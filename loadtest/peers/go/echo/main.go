// An echo server on net.Conn: echo plain|moved|in_turn. moved: the read deadline is moved before every read and the
// write deadline before every write. in_turn: the same in every second fiftieth of a second; when the last connection has
// ended it prints {"tax": ..., "pairs": ...}. tax: the additional CPU time of a message with deadlines, in percent; the
// median of `pairs` pairs of stretches.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	timeout = 5 * time.Second
	stretch = 20 * time.Millisecond
)

var (
	moving   atomic.Bool
	messages atomic.Int64
	open     atomic.Int64
	// CPU time per message with deadlines, divided by that without
	ratios []float64
	lock   sync.Mutex
)

func handle(conn net.Conn) {
	defer conn.Close()
	data := make([]byte, 65536)
	for {
		if moving.Load() {
			conn.SetReadDeadline(time.Now().Add(timeout))
		}
		size, err := conn.Read(data)
		if err != nil {
			return
		}
		if moving.Load() {
			conn.SetWriteDeadline(time.Now().Add(timeout))
		}
		if _, err := conn.Write(data[:size]); err != nil {
			return
		}
		messages.Add(1)
	}
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// The CPU seconds per message; 0 without a message.
func measure(on bool) float64 {
	moving.Store(on)
	count, used := messages.Load(), cpu()
	time.Sleep(stretch)
	count, used = messages.Load()-count, cpu()-used
	if count == 0 {
		return 0
	}
	return used / float64(count)
}

func alternate() {
	for {
		with := measure(true)
		if without := measure(false); with > 0 && without > 0 {
			lock.Lock()
			ratios = append(ratios, with/without)
			lock.Unlock()
		}
	}
}

func tell() {
	lock.Lock()
	defer lock.Unlock()
	if pairs := len(ratios); pairs > 0 {
		sort.Float64s(ratios)
		median := (ratios[(pairs-1)/2] + ratios[pairs/2]) / 2
		fmt.Printf("{\"tax\": %g, \"pairs\": %d}\n", (median-1)*100, pairs)
	}
}

func main() {
	ways := map[string]bool{"plain": false, "moved": true, "in_turn": false}
	if len(os.Args) != 2 {
		log.Fatal("usage: echo plain|moved|in_turn")
	}
	moved, known := ways[os.Args[1]]
	if !known {
		log.Fatal("usage: echo plain|moved|in_turn")
	}
	moving.Store(moved)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on tcp://%s\n", listener.Addr())
	if os.Args[1] == "in_turn" {
		go alternate()
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		open.Add(1)
		go func() {
			handle(conn)
			if open.Add(-1) == 0 {
				tell()
			}
		}()
	}
}
