package sqlstore

// ResultCode is tested with errors of drivers that the tests do not import.
var ResultCode = resultCode
