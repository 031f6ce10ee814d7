-- For wrk: POST 10 kB with every request.
wrk.method = "POST"
wrk.body = string.rep("x", 10000)
wrk.headers["Content-Type"] = "application/octet-stream"
