// Package examples holds no code, only programs, each in a folder of its own and
// each run by the tests of this package:
//
//   - quickstart: three replicas, a leader killed and a leader stopped, and an
//     account of what became of each tick. Its service.go is the file to copy.
//   - ticks: three replicas without a leader, each with a cron of its own, and an
//     account of which replica ran which tick.
//   - fenced: a replica that is frozen past its TTL and goes on, and the fence that
//     keeps it from paying a second time.
//   - cron: robfig/cron in the main of a service on PostgreSQL.
//   - ticker: a plain loop.
//   - tenants: a supervisor for each tenant, with tenants coming and going.
//
// They are a module of their own because the library requires none of what they
// import.
package examples
