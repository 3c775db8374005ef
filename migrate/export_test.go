package migrate

// LockKey is for tests that hold the schema's lock.
func LockKey(schemaName string) int64 { return lockKey(schemaName) }
