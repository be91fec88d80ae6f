//! Search attributes: whose run it is, for whoever looks at the cluster.

use std::collections::HashMap;
use std::time::Duration;

use temporalio_client::tonic::{Code, IntoRequest as _};
use temporalio_client::{Client, NamespacedClient as _};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::{
    AddSearchAttributesRequest, ListSearchAttributesRequest,
};
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributeUpdate, SearchAttributes};

use crate::error::{Place, Result};
use crate::plan::Plan;

/// Whose data it is.
pub(crate) const TENANT: SearchAttributeKey<String> = SearchAttributeKey::keyword("StargateTenant");
/// Of which project.
pub(crate) const PROJECT: SearchAttributeKey<String> = SearchAttributeKey::keyword("StargateProject");
/// The directive.
pub(crate) const DIRECTIVE: SearchAttributeKey<String> = SearchAttributeKey::keyword("StargateDirective");

/// How often the cluster is asked whether it knows them now, and what lies between.
const KNOWN_TRIES: u32 = 20;
const KNOWN_PAUSE: Duration = Duration::from_millis(250);

fn names() -> [&'static str; 3] {
    [TENANT.name(), PROJECT.name(), DIRECTIVE.name()]
}

pub(crate) fn values(directive: &str, plan: &Plan) -> [SearchAttributeUpdate; 3] {
    [
        TENANT.value_set(plan.tenant.clone()),
        PROJECT.value_set(plan.project.clone()),
        DIRECTIVE.value_set(directive.to_owned()),
    ]
}

pub(crate) fn is_set(attributes: &SearchAttributes) -> bool {
    attributes.contains_key(&DIRECTIVE)
}

/// Those of ours that the cluster does not know.
pub(crate) async fn missing(client: &Client, place: &Place) -> Result<Vec<String>> {
    let ask = ListSearchAttributesRequest { namespace: client.namespace() };
    let answer = client.connection().operator_service().list_search_attributes(ask.into_request()).await;
    let known = answer.map_err(|status| place.error("listing search attributes", &status))?.into_inner();
    let is_known = |name: &str| known.custom_attributes.contains_key(name);
    Ok(names().into_iter().filter(|name| !is_known(name)).map(str::to_owned).collect())
}

/// Makes the cluster know them; false if it does not let us. Runs go on without them.
pub(crate) async fn register(client: &Client, place: &Place) -> bool {
    let wanted = match missing(client, place).await {
        Ok(missing) if missing.is_empty() => return true,
        Ok(missing) => missing,
        Err(error) => {
            tracing::warn!(agent = "meta-worker", %error, "search attributes cannot be listed; runs are not searchable");
            return false;
        }
    };
    let kind = IndexedValueType::Keyword as i32;
    let ask = AddSearchAttributesRequest {
        search_attributes: wanted.iter().map(|name| (name.clone(), kind)).collect::<HashMap<_, _>>(),
        namespace: client.namespace(),
    };
    let added = client.connection().operator_service().add_search_attributes(ask.into_request()).await;
    if let Err(status) = added
        && status.code() != Code::AlreadyExists
    {
        let error = place.error("adding search attributes", &status);
        tracing::warn!(agent = "meta-worker", %error, wanted = wanted.join(", "),
            "search attributes cannot be added; runs are not searchable until an operator adds them");
        return false;
    }
    for _ in 0..KNOWN_TRIES {
        if missing(client, place).await.is_ok_and(|missing| missing.is_empty()) {
            return true;
        }
        tokio::time::sleep(KNOWN_PAUSE).await;
    }
    false
}
