//! See `portero_recipe::fuzz_entry::recipes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_recipe::fuzz_entry::recipes(data));
