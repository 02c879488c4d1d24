//! Entities whose events wait outside of the ordinary flow, and what an operator asks for them.

use portero_proto::v1;
use tonic::{Request, Status};

use super::{Admin, Answer};

impl Admin {
    pub(super) async fn do_update_subscription(
        &self,
        _: Request<v1::UpdateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        Err(Status::unimplemented("not served yet"))
    }

    pub(super) async fn do_list_parked_entities(
        &self,
        _: Request<v1::ListParkedEntitiesRequest>,
    ) -> Answer<v1::ListParkedEntitiesResponse> {
        Err(Status::unimplemented("not served yet"))
    }

    pub(super) async fn do_retry_parked_entity(
        &self,
        _: Request<v1::RetryParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        Err(Status::unimplemented("not served yet"))
    }

    pub(super) async fn do_dead_letter_parked_entity(
        &self,
        _: Request<v1::DeadLetterParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        Err(Status::unimplemented("not served yet"))
    }
}
