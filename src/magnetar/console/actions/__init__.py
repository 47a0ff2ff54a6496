"""What the console changes: forms, and what they have done. Switched off by ``console.read.only``.

- `action`: what an action is: the fields of its form, the right to it, a preview, what carries it out.
- `forms`: tokens that bind a form to its reader's login and to one use, and bodies of forms.
- `app`: the way in. `groups`, `subscriptions`, `topics`, `records`, `permissions`, `transactions`: the actions.

Nothing is carried out here: orders go through `magnetar.admin.inside` to what serves them over the network.
"""
