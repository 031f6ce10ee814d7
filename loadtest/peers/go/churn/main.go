// The server of the benchmark churn on net.Conn; the protocol is loadtest/peers/churn_protocol.py.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const (
	closing = 1

	set     = 0
	expired = 1

	monotonicClock = 1
)

// Two readings of one moment, by which Go's clock, whose monotonic part is hidden, is converted to the machine's.
var (
	base          = time.Now()
	baseMonotonic = machineClock()
)

func machineClock() float64 {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, monotonicClock, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		log.Fatal(failed)
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

// Seconds on the machine's clock; the zero Time is no deadline.
func seconds(when time.Time) float64 {
	if when.IsZero() {
		return math.Inf(1)
	}
	return baseMonotonic + when.Sub(base).Seconds()
}

func reply(conn net.Conn, number, kind uint32, due, lateness float64) error {
	var data [24]byte
	binary.LittleEndian.PutUint32(data[0:], number)
	binary.LittleEndian.PutUint32(data[4:], kind)
	binary.LittleEndian.PutUint64(data[8:], math.Float64bits(due))
	binary.LittleEndian.PutUint64(data[16:], math.Float64bits(lateness))
	_, err := conn.Write(data[:])
	return err
}

type deadline struct {
	number uint32
	due    time.Time
}

// Report the deadline that has passed; the error does not say which it was.
func report(conn net.Conn, last, previous deadline) error {
	now := time.Now()
	passed := last
	if last.due.IsZero() || now.Before(last.due) {
		passed = previous
	}
	lateness := math.Inf(-1)
	if !passed.due.IsZero() {
		lateness = now.Sub(passed.due).Seconds()
	}
	conn.SetDeadline(time.Time{})
	return reply(conn, passed.number, expired, seconds(passed.due), lateness)
}

func serve(conn net.Conn) {
	defer conn.Close()
	var last, previous deadline
	var data [16]byte
	have := 0
	for {
		got, err := conn.Read(data[have:])
		have += got
		if err == nil && have < len(data) {
			continue
		}
		if err == nil {
			have = 0
			previous = last
			last.number = binary.LittleEndian.Uint32(data[0:])
			kind := binary.LittleEndian.Uint32(data[4:])
			asked := math.Float64frombits(binary.LittleEndian.Uint64(data[8:]))
			last.due = time.Time{}
			if !math.IsInf(asked, 1) {
				last.due = base.Add(time.Duration((asked - baseMonotonic) * 1e9))
			}
			conn.SetDeadline(last.due)
			if kind == closing {
				return
			}
			err = reply(conn, last.number, set, seconds(last.due), 0)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = report(conn, last, previous)
			last.due = time.Time{}
		}
		if err != nil {
			return
		}
	}
}

func main() {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on tcp://%s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn)
	}
}
