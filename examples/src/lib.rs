//! Small complete programs, one in each file of `src/bin/`; and the code in the book, which is compiled here.

#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
mod library {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/fencing.md")]
mod fencing {}
