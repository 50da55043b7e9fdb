//! Opens the page of the run, on the first node and before its ranks start.

use crate::agent::driver::LaunchDriver;
use crate::agent::event::GroupEvent;
use crate::page::LivePage;
use crate::say;

impl LaunchDriver<'_> {
    /// Opens the page, if there is to be one and it is not open. A single node does not start without
    /// it. Where others have already begun to start, the launch goes on without.
    pub(super) fn open_page(&mut self) -> Option<GroupEvent> {
        let eval = self.plan.eval.as_ref()?;
        let plan = eval.page.as_ref().filter(|_| self.place.node == 0)?;
        if self.page.is_some() {
            return None;
        }
        match LivePage::open(plan, &eval.output, &self.place.launch) {
            Ok(page) => {
                let address = page.address();
                say::info(format_args!("page: http://{address}/ while the run lasts"));
                self.page = Some(page);
                None
            }
            Err(err) if self.plan.rendezvous.is_none() => {
                say::error(err);
                Some(GroupEvent::NotStarted(0))
            }
            Err(err) => {
                say::warning(err);
                None
            }
        }
    }
}
