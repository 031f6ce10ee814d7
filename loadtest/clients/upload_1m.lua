-- For wrk: POST 1 MB with every request.
wrk.method = "POST"
wrk.body = string.rep("x", 1000000)
wrk.headers["Content-Type"] = "application/octet-stream"
