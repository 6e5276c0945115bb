module github.com/joblease/joblease

go 1.25.0
