//! The gateway processes that run.

use portero_auth::Action;
use portero_proto::v1;
use portero_store::Replica;
use tonic::{Request, Response};

use super::{Admin, Answer, split};
use crate::error::from_store;
use crate::time;

/// Most that are listed.
const LISTED_MAX: usize = 1_000;

impl Admin {
    pub(super) async fn do_list_replicas(
        &self,
        request: Request<v1::ListReplicasRequest>,
    ) -> Answer<v1::ListReplicasResponse> {
        let (metadata, v1::ListReplicasRequest {}) = split(request);
        self.check(&metadata, Action::ListReplicas).await?;
        // In this order none that is up to date looks as if it were behind.
        let revision = self.store.revision().await.map_err(|error| from_store(&error))?;
        let replicas = self.store.replicas().await.map_err(|error| from_store(&error))?;
        Ok(Response::new(v1::ListReplicasResponse {
            replicas: replicas.into_iter().take(LISTED_MAX).map(to_proto).collect(),
            config_revision: revision.0,
        }))
    }
}

fn to_proto(replica: Replica) -> v1::Replica {
    v1::Replica {
        name: format!("replicas/{}", replica.id),
        instance: replica.instance,
        roles: replica.roles,
        version: replica.version,
        config_revision: replica.revision.0,
        start_time: Some(time::to_proto(replica.started_at)),
        last_seen_time: Some(time::to_proto(replica.seen_at)),
        clock_skew: Some(time::micros_to_proto(replica.skew_micros)),
        live: replica.live,
    }
}
