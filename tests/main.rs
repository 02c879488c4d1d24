//! End-to-end tests: the real binary, real databases, public surfaces only.
