//! What becomes of locks when their server fails, or somebody's clock: see `tests/faults`.
