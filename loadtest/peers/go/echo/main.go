// An echo server on net.Conn: echo plain|moved. moved: the read deadline is moved before every read and the write
// deadline before every write.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"time"
)

const timeout = 5 * time.Second

func handle(conn net.Conn, moving bool) {
	defer conn.Close()
	data := make([]byte, 65536)
	for {
		if moving {
			conn.SetReadDeadline(time.Now().Add(timeout))
		}
		size, err := conn.Read(data)
		if err != nil {
			return
		}
		if moving {
			conn.SetWriteDeadline(time.Now().Add(timeout))
		}
		if _, err := conn.Write(data[:size]); err != nil {
			return
		}
	}
}

func main() {
	if len(os.Args) != 2 || os.Args[1] != "plain" && os.Args[1] != "moved" {
		log.Fatal("usage: echo plain|moved")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on tcp://%s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go handle(conn, os.Args[1] == "moved")
	}
}
