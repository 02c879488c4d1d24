//! The opaque token of a delivery: a version, the subscription, the lane, and the engine's token.
//!
//! It is not secret and not signed: whoever may settle in a subscription may settle any delivery of it. A token of another
//! subscription is not understood.

use bytes::{BufMut as _, Bytes, BytesMut};
use portero_dispatcher::{DeliveryToken, Token};
use portero_types::{Epoch, LaneNo, SubscriptionNo};

const VERSION: u8 = 1;
const LENGTH: usize = 1 + 8 + 1 + 8 + 8 + 4;

/// Writes a token.
pub(crate) fn encode(subscription: SubscriptionNo, token: &DeliveryToken) -> Bytes {
    let mut bytes = BytesMut::with_capacity(LENGTH);
    bytes.put_u8(VERSION);
    bytes.put_i64(subscription.0);
    bytes.put_u8(token.lane.0);
    bytes.put_i64(token.token.epoch.0);
    bytes.put_u64(token.token.position);
    bytes.put_u32(token.token.delivery);
    bytes.freeze()
}

/// Reads a token of this subscription.
pub(crate) fn decode(subscription: SubscriptionNo, bytes: &[u8]) -> Option<DeliveryToken> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let (head, rest) = bytes.split_at(9);
    let number = i64::from_be_bytes(head[1..].try_into().ok()?);
    if head[0] != VERSION || number != subscription.0 {
        return None;
    }
    Some(DeliveryToken {
        lane: LaneNo(rest[0]),
        token: Token {
            epoch: Epoch(i64::from_be_bytes(rest[1..9].try_into().ok()?)),
            position: u64::from_be_bytes(rest[9..17].try_into().ok()?),
            delivery: u32::from_be_bytes(rest[17..].try_into().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_only_for_their_subscription_and_in_full() {
        let token = DeliveryToken {
            lane: LaneNo(255),
            token: Token { epoch: Epoch(3), position: u64::MAX, delivery: 7 },
        };
        let bytes = encode(SubscriptionNo(5), &token);
        assert!(bytes.len() <= 64);
        assert_eq!(decode(SubscriptionNo(5), &bytes), Some(token));
        assert_eq!(decode(SubscriptionNo(6), &bytes), None);
        assert_eq!(decode(SubscriptionNo(5), &bytes[1..]), None);
        assert_eq!(decode(SubscriptionNo(5), b""), None);
    }
}
