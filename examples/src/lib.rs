//! Small complete programs
