-- Error 1305 outside of a transaction, where a savepoint is forgotten at once.
SAVEPOINT distlock_fence;
RELEASE SAVEPOINT distlock_fence
