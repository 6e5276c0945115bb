// Package databases holds no code, only tests of package interop that need a
// database server.
package databases
