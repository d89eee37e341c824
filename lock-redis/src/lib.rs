//! Distributed locks in Redis or Valkey, with fencing tokens
