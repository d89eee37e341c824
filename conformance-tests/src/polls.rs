use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls a future so many times, whenever it wakes, and then drops it at once: dropped at each of its await points,
/// one after the other, by a growing number of times. `None` if it had not ended by then.
pub(crate) async fn polled<F: Future>(future: F, mut times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if times == 0 {
            return Poll::Ready(None);
        }
        times -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if times == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
