// The web application of loadtest/apps.py on net/http, with its four timeouts: web [SECONDS].
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

var (
	hello = []byte("Hello, world!")
	large = bytes.Repeat([]byte("x"), 64*1024)
	// 1,024 bytes, as in loadtest/apps.py
	json = []byte(`{"padding":"` + string(bytes.Repeat([]byte("x"), 1010)) + `"}`)
)

func answer(kind string, body []byte) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		header := writer.Header()
		header.Set("Content-Type", kind)
		header.Set("Content-Length", strconv.Itoa(len(body)))
		writer.Write(body)
	}
}

func upload(writer http.ResponseWriter, request *http.Request) {
	size, err := io.Copy(io.Discard, request.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	answer("text/plain", strconv.AppendInt(nil, size, 10))(writer, request)
}

func main() {
	timeout := 60 * time.Second
	if len(os.Args) > 1 {
		seconds, err := strconv.Atoi(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		timeout = time.Duration(seconds) * time.Second
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/{$}", answer("text/plain", hello))
	routes.HandleFunc("/json", answer("application/json", json))
	routes.HandleFunc("/large", answer("application/octet-stream", large))
	routes.HandleFunc("/upload", upload)
	server := http.Server{
		Handler:           routes,
		ReadHeaderTimeout: timeout,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		IdleTimeout:       timeout,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}
