//! What operators ask for.

use portero_engine::{Action, Requested, reason};
use portero_types::{EntityHash, Timestamp};

use super::Model;

impl Model {
    pub(crate) fn request(&mut self, now: Timestamp, entity: EntityHash, action: Action) -> Requested {
        if self.held.contains_key(&entity) {
            return Requested::InFlight;
        }
        if self.blocked.contains(&entity) {
            if action == Action::DeadLetter {
                return Requested::NotParked;
            }
            self.blocked.remove(&entity);
            self.open.entities.insert(entity);
            return Requested::Done;
        }
        let Some((position, event)) = self.next(entity).filter(|(_, event)| event.failed) else {
            return Requested::NotParked;
        };
        match action {
            Action::Retry => {
                let due = &mut self.events.get_mut(&position).expect("open").due;
                *due = (due.0.min(now), due.1.min(now));
            }
            Action::DeadLetter if !event.known => return Requested::NotYet,
            Action::DeadLetter => {
                self.die(position, (event.attempts, event.interruptions, Some(reason::OPERATOR)));
            }
        }
        Requested::Done
    }
}
