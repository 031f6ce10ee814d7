// What a contestant of the grid serves, on net/http: slow -port N [-read-header 10s] [-read 30s] [-write 30s] [-idle 15s].
package main

import (
	"bytes"
	"flag"
	"io"
	"log"
	"net/http"
	"strconv"
)

var body = bytes.Repeat([]byte("x"), 256*1024)

func answer(writer http.ResponseWriter, request *http.Request) {
	if _, err := io.Copy(io.Discard, request.Body); err != nil {
		http.Error(writer, err.Error(), http.StatusRequestTimeout)
		return
	}
	writer.Header().Set("Content-Type", "text/plain")
	writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	writer.Write(body)
}

func main() {
	server := http.Server{Handler: http.HandlerFunc(answer)}
	port := flag.Int("port", 0, "")
	flag.DurationVar(&server.ReadHeaderTimeout, "read-header", 0, "")
	flag.DurationVar(&server.ReadTimeout, "read", 0, "")
	flag.DurationVar(&server.WriteTimeout, "write", 0, "")
	flag.DurationVar(&server.IdleTimeout, "idle", 0, "")
	flag.Parse()
	server.Addr = "127.0.0.1:" + strconv.Itoa(*port)
	log.Fatal(server.ListenAndServe())
}
