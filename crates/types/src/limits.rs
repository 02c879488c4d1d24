//! Bounds that hold everywhere. Each is checked where the value enters the system.

/// Longest event id kept as text, bytes of UTF-8. A longer one is replaced by its SHA-256 and marked as derived.
pub const EVENT_ID_BYTES_MAX: usize = 512;
/// Longest event type kept, bytes of UTF-8. A longer one is cut at a character boundary.
pub const EVENT_TYPE_BYTES_MAX: usize = 256;
/// Longest ordering key kept as text, bytes of UTF-8. A longer one is replaced by its SHA-256, which keeps entities apart.
pub const ORDERING_KEY_BYTES_MAX: usize = 512;
/// Default largest request body, bytes. Also the ceiling of one delivered event.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Most events in one request. A provider that fills its requests by bytes may send very small events: 768 KB of SendGrid's hold
/// more than three thousand, and what is refused for their number comes again with the same number.
pub const EVENTS_PER_REQUEST_MAX: usize = 4_096;
/// Most signatures read from one request.
pub const SIGNATURES_PER_REQUEST_MAX: usize = 16;
/// Most secrets of one source that may verify at the same moment.
pub const ACTIVE_SECRETS_MAX: usize = 8;
/// Most secrets of one source that are kept, planned, ended and revoked ones included.
pub const SECRETS_PER_SOURCE_MAX: usize = 512;
/// Longest signature header read, bytes.
pub const SIGNATURE_HEADER_BYTES_MAX: usize = 8 * 1024;
/// Deepest nesting of JSON that extraction follows.
pub const JSON_DEPTH_MAX: usize = 64;
/// Most headers kept with an event.
pub const HEADERS_KEPT_MAX: usize = 32;
/// Longest kept header value, bytes; a longer one is dropped.
pub const HEADER_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Longest reason text that a consumer may give when it settles, bytes of UTF-8; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 1024;
/// Longest name of a caller (`sub` of its token) and longest pattern of one, bytes of UTF-8.
pub const SUBJECT_BYTES_MAX: usize = 256;
