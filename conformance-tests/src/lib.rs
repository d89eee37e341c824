//! Numbered rules for every distlock backend, those of strangers too
