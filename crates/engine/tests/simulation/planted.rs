//! Wrong variants of the system, at its boundaries: in the store, in the replica, in what goes into a lane and comes out of it. The
//! checker has to notice each of them.

use crate::checker::Promise;
use crate::profile::Weather;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    DispatchesBeforeItLoadsWhatIsParked,
    LetsABlockedEntityGoOn,
    LetsTwoStreamsHaveAnEntity,
    TrustsForEver,
    SendsWhatItPreparedLongAgo,
    TakesOldTokensForNewOnes,
    ResumesWhateverItIsTold,
    AnswersBeforeItIsWritten,
    TakesUnknownForWritten,
    ReadsTheJournalBeforeTheFence,
    WritesForAFencedOwner,
    LetsAnOlderFlushWin,
    ForgetsTheAckedList,
    RaisesTheWatermarkByOne,
    LosesAParkedRow,
    LosesADeferredRow,
    LosesAnOverflow,
    ForgetsDetours,
    UnparksWhatStillWaits,
    LetsAFailureBlockItsLane,
    IgnoresAStreamsRoom,
    LetsOneFullStreamStallTheOthers,
    CountsAttemptsOfWaitingEvents,
    TakesAPlannedEndForACrash,
    CountsAReleaseAsAFailure,
    RestartsDeadlines,
}

/// A wrong variant: the promise that it is planted in or the failure that it is, what brings it out, and which promises it breaks.
pub(crate) struct Case {
    pub(crate) planted: Planted,
    pub(crate) of: &'static str,
    pub(crate) weather: Weather,
    pub(crate) breaks: &'static [Promise],
}

const fn case(planted: Planted, of: &'static str, weather: Weather, breaks: &'static [Promise]) -> Case {
    Case { planted, of, weather, breaks }
}

/// All of them. Each promise and each of the failures F15, F16, F18, F19, F22, F23, F24, F26 and F42 has one at least.
pub(crate) const PLANTED: &[Case] = {
    use Planted as P;
    use Promise::{Defer, S1, S2, S3, S4, S5, S6, S7};
    use Weather::{Failing, Planned, Stalled, Storm};
    &[
        case(P::DispatchesBeforeItLoadsWhatIsParked, "S1, F23", Storm, &[S1]),
        case(P::LetsABlockedEntityGoOn, "S1", Storm, &[S1]),
        case(P::LetsTwoStreamsHaveAnEntity, "S2", Storm, &[S2]),
        case(P::TrustsForEver, "S2, F15", Storm, &[S2]),
        case(P::SendsWhatItPreparedLongAgo, "S2, F15", Storm, &[S2]),
        case(P::TakesOldTokensForNewOnes, "S2, F42", Storm, &[S2, S3, S7]),
        case(P::ResumesWhateverItIsTold, "S2", Storm, &[S1, S2, S3]),
        case(P::AnswersBeforeItIsWritten, "S3", Storm, &[S1, S3]),
        case(P::TakesUnknownForWritten, "S3, F19", Storm, &[S1, S3]),
        case(P::ReadsTheJournalBeforeTheFence, "S3, F16", Storm, &[S1, S3, S4]),
        case(P::WritesForAFencedOwner, "S3, F15", Storm, &[S3, S4]),
        case(P::LetsAnOlderFlushWin, "S3, F18", Storm, &[Defer, S3, S4]),
        case(P::ForgetsTheAckedList, "S3", Storm, &[S3, S4]),
        case(P::RaisesTheWatermarkByOne, "S4, F22", Storm, &[S4]),
        case(P::LosesAParkedRow, "S4, F22", Storm, &[S4]),
        case(P::LosesADeferredRow, "S4", Storm, &[S4]),
        case(P::LosesAnOverflow, "S4", Storm, &[S4]),
        case(P::ForgetsDetours, "S4", Storm, &[S1, S4]),
        case(P::UnparksWhatStillWaits, "S4, F24", Storm, &[S4]),
        case(P::LetsAFailureBlockItsLane, "S5", Failing, &[S5]),
        case(P::IgnoresAStreamsRoom, "S6", Stalled, &[S6]),
        case(P::LetsOneFullStreamStallTheOthers, "S6", Stalled, &[S6]),
        case(P::CountsAttemptsOfWaitingEvents, "S7, F26", Storm, &[S7]),
        case(P::TakesAPlannedEndForACrash, "S7", Planned, &[S7]),
        case(P::CountsAReleaseAsAFailure, "S7", Planned, &[S7]),
        case(P::RestartsDeadlines, "deferral", Storm, &[Defer]),
    ]
};
