// Package joblease keeps scheduled jobs on one replica at a time, coordinated by
// one row per lease in the database that the service already has.
package joblease
