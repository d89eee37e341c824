//! The engine on the paused clock, above a backend that can be told to fail.

mod cancel;
mod hold;
mod scripted;
