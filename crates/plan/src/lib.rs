//! Geometry of KV caches as plain integers.
#![forbid(unsafe_code)]
