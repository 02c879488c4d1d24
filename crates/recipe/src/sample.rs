//! Sample events of the presets, for `portero send` and for tests.

/// A realistic event of a provider, not yet signed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The event's type, as [`crate::extract()`] will find it.
    pub event_type: String,
    /// The entity, as [`crate::extract()`] will find it.
    pub entity: String,
    /// Headers beside those of the signature (account, API version), lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A sample event of a preset, about `entity` (`None`: one that the sample chooses), with the given event id.
///
/// The id lands in the body or, by [`crate::sign()`], in a header, wherever the provider sends it. `None` for a name that
/// is not a preset's.
#[must_use]
pub fn sample(preset: &str, id: &str, entity: Option<&str>) -> Option<Sample> {
    let _ = (preset, id, entity);
    None
}
