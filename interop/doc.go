// Package interop holds no code, only tests: joblease tried against the tools
// that it is used with, as they are published. They are schedulers
// (robfig/cron, gocron), migration tools (goose, golang-migrate) and goleak, and
// they are a module of their own because the root module must not require them.
//
// Tests that need a database, or take long, are left out with -short.
package interop
