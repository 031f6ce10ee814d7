module deadlined/loadtest

go 1.23
