//! The generated service trait, each method where its resource is.

use portero_proto::v1;
use portero_proto::v1::admin_service_server::AdminService;
use tonic::Request;

use super::{Admin, Answer};

#[tonic::async_trait]
impl AdminService for Admin {
    async fn create_tenant(&self, request: Request<v1::CreateTenantRequest>) -> Answer<v1::Tenant> {
        self.do_create_tenant(request).await
    }

    async fn get_tenant(&self, request: Request<v1::GetTenantRequest>) -> Answer<v1::Tenant> {
        self.do_get_tenant(request).await
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Answer<v1::ListTenantsResponse> {
        self.do_list_tenants(request).await
    }

    async fn update_tenant(&self, request: Request<v1::UpdateTenantRequest>) -> Answer<v1::Tenant> {
        self.do_update_tenant(request).await
    }

    async fn delete_tenant(
        &self,
        request: Request<v1::DeleteTenantRequest>,
    ) -> Answer<v1::DeleteTenantResponse> {
        self.do_delete_tenant(request).await
    }

    async fn erase_tenant(
        &self,
        request: Request<v1::EraseTenantRequest>,
    ) -> Answer<v1::EraseTenantResponse> {
        self.do_erase_tenant(request).await
    }

    async fn list_presets(
        &self,
        request: Request<v1::ListPresetsRequest>,
    ) -> Answer<v1::ListPresetsResponse> {
        self.do_list_presets(request).await
    }

    async fn get_preset(&self, request: Request<v1::GetPresetRequest>) -> Answer<v1::Preset> {
        self.do_get_preset(request).await
    }

    async fn create_source(&self, request: Request<v1::CreateSourceRequest>) -> Answer<v1::Source> {
        self.do_create_source(request).await
    }

    async fn get_source(&self, request: Request<v1::GetSourceRequest>) -> Answer<v1::Source> {
        self.do_get_source(request).await
    }

    async fn list_sources(
        &self,
        request: Request<v1::ListSourcesRequest>,
    ) -> Answer<v1::ListSourcesResponse> {
        self.do_list_sources(request).await
    }

    async fn update_source(&self, request: Request<v1::UpdateSourceRequest>) -> Answer<v1::Source> {
        self.do_update_source(request).await
    }

    async fn delete_source(
        &self,
        request: Request<v1::DeleteSourceRequest>,
    ) -> Answer<v1::DeleteSourceResponse> {
        self.do_delete_source(request).await
    }

    async fn create_secret(&self, request: Request<v1::CreateSecretRequest>) -> Answer<v1::Secret> {
        self.do_create_secret(request).await
    }

    async fn rotate_secret(
        &self,
        request: Request<v1::RotateSecretRequest>,
    ) -> Answer<v1::RotateSecretResponse> {
        self.do_rotate_secret(request).await
    }

    async fn retire_secret(&self, request: Request<v1::RetireSecretRequest>) -> Answer<v1::Secret> {
        self.do_retire_secret(request).await
    }

    async fn revoke_secret(
        &self,
        request: Request<v1::RevokeSecretRequest>,
    ) -> Answer<v1::RevokeSecretResponse> {
        self.do_revoke_secret(request).await
    }

    async fn get_secret(&self, request: Request<v1::GetSecretRequest>) -> Answer<v1::Secret> {
        self.do_get_secret(request).await
    }

    async fn list_secrets(
        &self,
        request: Request<v1::ListSecretsRequest>,
    ) -> Answer<v1::ListSecretsResponse> {
        self.do_list_secrets(request).await
    }

    async fn reveal_secret(&self, request: Request<v1::RevealSecretRequest>) -> Answer<v1::Secret> {
        self.do_reveal_secret(request).await
    }

    async fn delete_secret(
        &self,
        request: Request<v1::DeleteSecretRequest>,
    ) -> Answer<v1::DeleteSecretResponse> {
        self.do_delete_secret(request).await
    }

    async fn list_rejections(
        &self,
        request: Request<v1::ListRejectionsRequest>,
    ) -> Answer<v1::ListRejectionsResponse> {
        self.do_list_rejections(request).await
    }

    async fn get_rejection(&self, request: Request<v1::GetRejectionRequest>) -> Answer<v1::Rejection> {
        self.do_get_rejection(request).await
    }

    async fn explain_request(&self, request: Request<v1::ExplainRequestRequest>) -> Answer<v1::Explanation> {
        self.do_explain_request(request).await
    }

    async fn create_subscription(
        &self,
        request: Request<v1::CreateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        self.do_create_subscription(request).await
    }

    async fn get_subscription(
        &self,
        request: Request<v1::GetSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        self.do_get_subscription(request).await
    }

    async fn list_subscriptions(
        &self,
        request: Request<v1::ListSubscriptionsRequest>,
    ) -> Answer<v1::ListSubscriptionsResponse> {
        self.do_list_subscriptions(request).await
    }

    async fn update_subscription(
        &self,
        request: Request<v1::UpdateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        self.do_update_subscription(request).await
    }

    async fn delete_subscription(
        &self,
        request: Request<v1::DeleteSubscriptionRequest>,
    ) -> Answer<v1::DeleteSubscriptionResponse> {
        self.do_delete_subscription(request).await
    }

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Answer<v1::ListDeadLettersResponse> {
        self.do_list_dead_letters(request).await
    }

    async fn list_parked_entities(
        &self,
        request: Request<v1::ListParkedEntitiesRequest>,
    ) -> Answer<v1::ListParkedEntitiesResponse> {
        self.do_list_parked_entities(request).await
    }

    async fn retry_parked_entity(
        &self,
        request: Request<v1::RetryParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        self.do_retry_parked_entity(request).await
    }

    async fn dead_letter_parked_entity(
        &self,
        request: Request<v1::DeadLetterParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        self.do_dead_letter_parked_entity(request).await
    }

    async fn get_receipt(&self, request: Request<v1::GetReceiptRequest>) -> Answer<v1::Receipt> {
        self.do_get_receipt(request).await
    }

    async fn create_grant(&self, request: Request<v1::CreateGrantRequest>) -> Answer<v1::Grant> {
        self.do_create_grant(request).await
    }

    async fn get_grant(&self, request: Request<v1::GetGrantRequest>) -> Answer<v1::Grant> {
        self.do_get_grant(request).await
    }

    async fn list_grants(&self, request: Request<v1::ListGrantsRequest>) -> Answer<v1::ListGrantsResponse> {
        self.do_list_grants(request).await
    }

    async fn delete_grant(
        &self,
        request: Request<v1::DeleteGrantRequest>,
    ) -> Answer<v1::DeleteGrantResponse> {
        self.do_delete_grant(request).await
    }

    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Answer<v1::ListAuditEntriesResponse> {
        self.do_list_audit_entries(request).await
    }

    async fn list_replicas(
        &self,
        request: Request<v1::ListReplicasRequest>,
    ) -> Answer<v1::ListReplicasResponse> {
        self.do_list_replicas(request).await
    }
}
