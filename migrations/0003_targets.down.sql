-- Removes the targets and the outbox: events and deliveries that were not sent yet are lost.
drop table tenure.target_export, tenure.delivery, tenure.outbox_rotation, tenure.outbox, tenure.outbox_interest, tenure.target_state, tenure.target;
drop sequence tenure.outbox_id;
