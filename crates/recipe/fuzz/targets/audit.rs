//! See `portero_store::fuzz_entry::audit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_store::fuzz_entry::audit(data));
