//! Who leads, who did, and that never two did at once.

use askama::Template;

use super::call::Answer;
use super::frame::{Frame, Shown, Visit, ask};
use super::html;
use super::job::Confirm;
use super::strip::{self, Strip};
use crate::api::types::leader::Leader;

const HERE: &str = "/leadership";
/// Terms that are shown.
const TERMS: u32 = 50;

#[derive(Template)]
#[template(path = "leadership.html")]
struct Leadership {
    frame: Frame,
    leader: Leader,
    strip: Option<Strip>,
    announce: String,
}

/// `GET /leadership`
pub(crate) async fn show(visit: Visit) -> Shown {
    let leader: Leader = ask!(visit, visit.api.get(&format!("/leader?terms={TERMS}")).await);
    let frame = visit.frame("Leadership", HERE);
    let strip = strip::draw(&leader.terms, &leader.overlaps, frame.now);
    let announce = match &leader.leader {
        Some(node) => format!("{} leads", node.instance),
        None => "Nobody leads".to_owned(),
    };
    visit.show(&Leadership { frame, leader, strip, announce })
}

/// `GET /leadership/step-down`
pub(crate) async fn ask(visit: Visit) -> Shown {
    let instance = &visit.site.0.shared.about.instance;
    let page = Confirm {
        frame: visit.frame("Step down", HERE),
        what: format!("{instance} gives up the lead."),
        consequence: "Changes are refused for about a second, until another node leads. If there is no other node, this one leads again.".to_owned(),
        action: "/leadership/step-down".to_owned(),
        button: "Step down",
        is_danger: true,
        fields: Vec::new(),
        back: HERE.to_owned(),
        twin: "stargate leader step-down".to_owned(),
    };
    visit.show(&page)
}

/// `POST /leadership/step-down`
pub(crate) async fn step_down(visit: Visit) -> Shown {
    let done: Answer<Leader> = visit.api.post("/leader/step-down").await;
    visit.after(HERE, done, |done| format!("{} stepped down.", done.instance))
}
