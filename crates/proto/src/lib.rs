//! Types and service stubs generated from `proto/`; nothing here is written by hand.
//!
//! They are for the edges only (`api`, `client`): no generated type may enter `types`, `engine` or `store`.

/// Package `portero.v1`.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::wildcard_enum_match_arm
    )]
    tonic::include_proto!("portero.v1");
}

/// The compiled descriptors (`google.protobuf.FileDescriptorSet`), for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
