// Package sqlstore keeps leases through database/sql.
package sqlstore
