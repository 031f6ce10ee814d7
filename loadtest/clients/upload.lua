-- For wrk: POST 64 KiB with every request.
wrk.method = "POST"
wrk.body = string.rep("x", 64 * 1024)
wrk.headers["Content-Type"] = "application/octet-stream"
