//! Keeps an execution that was paused from writing over newer rows elsewhere.
//!
//! The lease is in the store and the rows are not, so the store cannot refuse them. The highest version of the lease that
//! was seen is kept beside the rows, in `stargate_fence`, and is compared in the transaction that writes them.

use stargate_directive::source::Owner;
use stargate_queue::Result;

use super::error::fenced;

/// Refuses a version of the lease that is lower than the highest one seen, itself included.
pub(super) fn check(owner: &Owner, fence: i64, highest: i64) -> Result<()> {
    if highest > fence { Err(fenced(remedy(owner, fence, highest))) } else { Ok(()) }
}

fn remedy(owner: &Owner, fence: i64, highest: i64) -> String {
    let Owner { tenant, project, directive } = owner;
    format!(
        "another execution of the directive {directive} went on meanwhile (its lease has version {highest}, this one's \
         {fence}); nothing was written, and this execution can end. If the store was set up anew, so that its versions \
         began at 1 again, remove the row with tenant_id {tenant:?}, project_id {project:?} and directive {directive:?} \
         from the table stargate_fence of the sink's database, and run the directive again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lower_version_is_refused() {
        let owner = Owner { tenant: "t".to_owned(), project: "p".to_owned(), directive: "d".to_owned() };
        assert!(check(&owner, 7, 7).is_ok());
        assert!(check(&owner, 6, 7).is_err());
    }
}
