//! See `portero_keyring::fuzz_entry::sealed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_keyring::fuzz_entry::sealed(data));
