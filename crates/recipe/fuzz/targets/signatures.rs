//! See `portero_recipe::fuzz_entry::signatures`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_recipe::fuzz_entry::signatures(data));
