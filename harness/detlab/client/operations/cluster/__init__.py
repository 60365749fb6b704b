"""Operations on the master and its Hub."""
