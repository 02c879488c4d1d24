//! Unpredictable bytes from the operating system: the one place where they enter.

/// `N` random bytes.
///
/// # Panics
/// When the operating system has none to give; nothing safe can be done without.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// 128 random bits.
pub(crate) fn random_u128() -> u128 {
    u128::from_ne_bytes(random())
}

/// 64 random bits.
pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random())
}
