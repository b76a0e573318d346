module esker.dev/esker

go 1.25
