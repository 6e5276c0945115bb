module github.com/joblease/joblease/sqlstore

go 1.25.0

require github.com/joblease/joblease v0.1.0

replace github.com/joblease/joblease => ../
